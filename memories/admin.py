"""Curation of memories, their projects and imports."""

from django.contrib import admin

from memories.models import Project


@admin.register(Project)
class ProjectAdmin(admin.ModelAdmin):
    search_fields = ("slug", "name")
